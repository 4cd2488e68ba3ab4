"""The command `primecast`: each command parses its arguments, calls one function of the package and prints.

`app` has the entry point, `own_data` the commands for a table of your own, `tables` what they do with it, `research`
the commands for benchmarks and studies, `demo` the demonstration, `options` the shared options, `targets` the checks of
files, `guard` how commands end. Heavy modules are imported inside the commands, after these checks, so that `primecast
--help` and "there is no file" are instant. May import: everything.
"""
