"""What others printed, to stand beside what we measure: MSE/MAE on scaled data at look-back 96.

The prime attention paper: Lee & Clark, "Dynamic Relational Priming Improves Transformer in Multivariate Time Series",
ICML 2026; its main table, its table of relational baselines and its small tables. The backbone: Liu et al.,
"iTransformer", ICLR 2024, its main table, as quoted in many later papers. A dash is a cell that was left empty.
"""

from collections.abc import Mapping

PAPER_MAIN = """
data set horizon Timer-XL Timer-XL+prime FreDF FreDF+prime iTransformer iTransformer+prime
ETTh1         96  .380/.398  .377/.394  .380/.394  .376/.392  .387/.403  .379/.398
ETTh1        192  .432/.429  .428/.424  .434/.426  .430/.423  .439/.432  .432/.428
ETTh1        336  .473/.453  .469/.448  .479/.451  .473/.448  .482/.455  .472/.449
ETTh1        720  .528/.500  .478/.473  .516/.500  .517/.501  .489/.481  .478/.475
ETTh2         96  .298/.348  .293/.345  .289/.340  .286/.337  .315/.361  .296/.348
ETTh2        192  .383/.402  .376/.398  .382/.400  .380/.395  .380/.402  .374/.399
ETTh2        336  .435/.441  .429/.438  .438/.444  .438/.443  .421/.431  .416/.428
ETTh2        720  .467/.469  .458/.465  .451/.461  .450/.460  .423/.443  .420/.441
ETTm1         96  .329/.364  .321/.359  .325/.359  .318/.353  .337/.371  .325/.363
ETTm1        192  .394/.403  .384/.397  .374/.384  .368/.382  .377/.392  .368/.388
ETTm1        336  .458/.441  .444/.433  .418/.411  .415/.409  .420/.418  .405/.412
ETTm1        720  .581/.503  .560/.491  .492/.454  .500/.462  .487/.456  .476/.451
ETTm2         96  .181/.264  .178/.262  .184/.263  .183/.262  .182/.266  .178/.262
ETTm2        192  .248/.307  .245/.306  .250/.304  .249/.303  .247/.308  .243/.304
ETTm2        336  .316/.350  .313/.348  .311/.342  .310/.342  .310/.347  .304/.343
ETTm2        720  .425/.413  .422/.412  .412/.399  .412/.399  .410/.404  .403/.400
Weather       96  .203/.253  .173/.214  .174/.210  .168/.207  .178/.216  .170/.210
Weather      192  .225/.292  .219/.257  .227/.257  .220/.253  .227/.259  .218/.254
Weather      336  .303/.326  .277/.299  .283/.298  .278/.296  .282/.299  .276/.296
Weather      720  .375/.371  .365/.356  .362/.350  .359/.348  .358/.349  .351/.347
Solar-Energy  96  .200/.235  .197/.234  .210/.226  .203/.220  .207/.235  .199/.226
Solar-Energy 192  .248/.266  .251/.269  .233/.251  .225/.245  .242/.266  .228/.258
Solar-Energy 336  .300/.298  .301/.299  .244/.267  .241/.264  .252/.278  .240/.270
Solar-Energy 720  .378/.338  .365/.336  .247/.270  .247/.273  .249/.279  .247/.278
ECL           96  .136/.230  .136/.230  .143/.233  .142/.231  .146/.240  .148/.239
ECL          192  .158/.252  .157/.250  .159/.249  .156/.246  .163/.255  .164/.255
ECL          336  .180/.277  .177/.272  .172/.264  .170/.263  .178/.271  .180/.271
ECL          720  .242/.333  .232/.321  .203/.293  .202/.293  .209/.300  .208/.297
Traffic       96  .387/.259  .384/.257  .392/.259  .390/.257  .394/.266  .392/.264
Traffic      192  .418/.276  .415/.275  .419/.271  .415/.268  .420/.276  .415/.274
Traffic      336  .448/.290  .447/.299  .435/.279  .430/.276  .436/.284  .432/.282
Traffic      720  .518/.325  .496/.323  .464/.296  .461/.294  .468/.301  .465/.300
PEMS03        12  -          -          .068/.171  .067/.171  .069/.174  .070/.174
PEMS03        24  -          -          .095/.204  .095/.202  .098/.208  .096/.206
PEMS03        48  -          -          .155/.262  .151/.257  .159/.269  .158/.264
PEMS03        96  -          -          .232/.331  .219/.318  .242/.342  .230/.327
PEMS08        12  -          -          .078/.177  .076/.173  .080/.181  .078/.177
PEMS08        24  -          -          .112/.210  .107/.204  .116/.217  .111/.210
PEMS08        48  -          -          .185/.267  .174/.258  .196/.281  .183/.267
PEMS08        96  -          -          .312/.344  .288/.327  .338/.373  .297/.339
"""
PAPER_RELATIONAL = """
data set horizon prime DIFF LagTS LIFT Autoformer
ETTh1     96  .379/.398  .385/.400  .384/.402  .385/.404  .449/.459
ETTh1    192  .432/.428  .438/.431  .437/.435  .431/.429  .500/.482
ETTh1    336  .472/.449  .480/.453  .470/.449  .475/.450  .521/.496
ETTh1    720  .478/.475  .479/.477  .466/.469  .479/.473  .514/.512
ETTh2     96  .296/.348  .309/.360  .305/.351  .306/.351  .346/.388
ETTh2    192  .374/.399  .385/.405  .381/.399  .390/.406  .456/.452
ETTh2    336  .416/.428  .422/.434  .416/.428  .418/.429  .482/.486
ETTh2    720  .420/.441  .428/.446  .425/.444  .427/.446  .515/.511
Exchange  96  .083/.201  .083/.201  .085/.206  .085/.205  .197/.323
Exchange 192  .172/.295  .173/.295  .181/.304  .178/.302  .300/.369
Exchange 336  .314/.405  .332/.418  .331/.416  .328/.415  .509/.524
Exchange 720  .786/.668  .839/.690  .768/.663  .831/.691  1.447/.941
Weather   96  .170/.210  .176/.215  .173/.216  .172/.216  .266/.336
Weather  192  .218/.254  .225/.258  .224/.260  .225/.260  .307/.367
Weather  336  .276/.296  .280/.299  .280/.300  .283/.302  .359/.395
Weather  720  .351/.347  .356/.349  .355/.349  .358/.350  .419/.428
ECL       96  .148/.239  .147/.239  -          .160/.250  .201/.317
ECL      192  .164/.255  .161/.252  -          .183/.267  .222/.334
ECL      336  .180/.271  .175/.268  -          .199/.283  .231/.338
ECL      720  .208/.297  .210/.299  -          .230/.310  .254/.361
Traffic   96  .392/.264  .395/.265  -          .504/.322  .613/.388
Traffic  192  .415/.274  .419/.275  -          .499/.319  .616/.382
Traffic  336  .432/.282  .436/.283  -          .508/.321  .622/.337
Traffic  720  .465/.300  .464/.299  -          .542/.339  .660/.408
"""
BACKBONE = """
data set, then its four horizons: 96 192 336 720, of PEMS 12 24 48 96
ETTh1        .386/.405  .441/.436  .487/.458  .503/.491
ETTh2        .297/.349  .380/.400  .428/.432  .427/.445
ETTm1        .334/.368  .377/.391  .426/.420  .491/.459
ETTm2        .180/.264  .250/.309  .311/.348  .412/.407
ECL          .148/.240  .162/.253  .178/.269  .225/.317
Exchange     .086/.206  .177/.299  .331/.417  .847/.691
Traffic      .395/.268  .417/.276  .433/.283  .467/.302
Weather      .174/.214  .221/.254  .278/.296  .358/.347
Solar-Energy .203/.237  .233/.261  .248/.273  .249/.275
PEMS03       .071/.174  .093/.201  .125/.236  .164/.275
PEMS08       .079/.182  .115/.219  .186/.235  .221/.267
"""
PAPER_HEADS = """
data set horizon standard-8 standard-9 prime-8
ETTh1         96  .386  .385  .378
Weather       96  .176  .176  .170
Solar-Energy  96  .207  .209  .199
"""
PAPER_KV = """
data set horizon standard k v kv
ETTh1         96  .387  .384  .385  .379
ETTh2         96  .315  .304  .310  .296
Weather       96  .178  .174  .174  .170
"""
PAPER_STABILITY = """
data set horizon prime spread
ETTh1         96  .378  .001
ETTh1        192  .432  .001
ETTh1        336  .473  .001
ETTh1        720  .479  .001
ETTh2         96  .297  .001
ETTh2        192  .376  .001
ETTh2        336  .413  .001
ETTh2        720  .420  .0008
Weather       96  .170  .001
Weather      192  .218  .001
Weather      336  .275  .001
Weather      720  .354  .0005
ECL           96  .146  .0005
ECL          192  .164  .001
ECL          336  .179  .001
ECL          720  .214  .002
Traffic       96  .395  .0001
Traffic      192  .417  .0002
Traffic      336  .431  .0001
Traffic      720  .463  .001
"""


def paper(table: str) -> dict[tuple[str, int], dict[str, str]]:
    """A table above, by data set and horizon: what is printed in each column; empty cells are left out.

    >>> paper(PAPER_MAIN)["ETTh1", 96]["iTransformer"]
    '.387/.403'
    """
    head, *lines = table.strip().splitlines()
    columns = head.removeprefix("data set horizon ").split()
    cells: dict[tuple[str, int], dict[str, str]] = {}
    for line in lines:
        dataset, horizon, *values = line.split()
        cells[dataset, int(horizon)] = {name: v for name, v in zip(columns, values, strict=True) if v != "-"}
    return cells


def printed(table: str, names: Mapping[str, str]) -> dict[tuple[str, int, str], str]:
    """A table of the paper by data set, horizon and variant of ours; names: its column -> our variant."""
    return {(*place, names[column]): text for place, row in paper(table).items() for column, text in row.items()}


def backbone() -> dict[tuple[str, int], str]:
    """What iTransformer's authors print for it, by data set and horizon.

    >>> backbone()["ETTh2", 192]
    '.380/.400'
    """
    cells: dict[tuple[str, int], str] = {}
    for line in BACKBONE.strip().splitlines()[1:]:
        dataset, *values = line.split()
        horizons = (12, 24, 48, 96) if dataset.startswith("PEMS") else (96, 192, 336, 720)
        cells |= {(dataset, horizon): value for horizon, value in zip(horizons, values, strict=True)}
    return cells
