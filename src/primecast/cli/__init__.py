"""The command `primecast`: commands parse their arguments, call one function of the package and print.

`own_data` has the commands for a table of your own, `demo` the demonstration. Heavy modules are imported inside the
commands, so that `primecast --help` is instant. May import: everything.
"""
