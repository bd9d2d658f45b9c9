"""The words of which cells are written: `cell`, and the functions of a step. No torch."""

from constrint.kernels.rnn.language.trace import (
    cell as cell,
)
from constrint.kernels.rnn.language.trace import (
    erf as erf,
)
from constrint.kernels.rnn.language.trace import (
    exp as exp,
)
from constrint.kernels.rnn.language.trace import (
    head_mean as head_mean,
)
from constrint.kernels.rnn.language.trace import (
    head_sum as head_sum,
)
from constrint.kernels.rnn.language.trace import (
    log as log,
)
from constrint.kernels.rnn.language.trace import (
    log1p as log1p,
)
from constrint.kernels.rnn.language.trace import (
    logsigmoid as logsigmoid,
)
from constrint.kernels.rnn.language.trace import (
    maximum as maximum,
)
from constrint.kernels.rnn.language.trace import (
    minimum as minimum,
)
from constrint.kernels.rnn.language.trace import (
    relu as relu,
)
from constrint.kernels.rnn.language.trace import (
    rounded_down as rounded_down,
)
from constrint.kernels.rnn.language.trace import (
    rsqrt as rsqrt,
)
from constrint.kernels.rnn.language.trace import (
    sigmoid as sigmoid,
)
from constrint.kernels.rnn.language.trace import (
    softplus as softplus,
)
from constrint.kernels.rnn.language.trace import (
    sqrt as sqrt,
)
from constrint.kernels.rnn.language.trace import (
    surrogate as surrogate,
)
from constrint.kernels.rnn.language.trace import (
    tanh as tanh,
)
from constrint.kernels.rnn.language.trace import (
    where as where,
)
