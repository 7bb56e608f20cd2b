"""The mechanisms of both papers as pure functions: no I/O, no clock, randomness passed in.

The names are the papers'. Figure 2 of BLENDER, line by line:

    1  partition O into S and T                       partition_users
    2  HL_S = CreateHeadList(S)                       create_head_list
    3  HL, p̂_O, σ̂²_O = EstimateOptinProbabilities(T)   estimate_optin_probabilities
    4  p̂_C, σ̂²_C = EstimateClientProbabilities(C)      local_alg, estimate_client_probabilities
    5  p̂ = BlendProbabilities(…)                      blend_probabilities

and Release-Data of the earlier paper is `release_data`. These names are imported at first use,
because they need NumPy: a device has none, and imports from the modules themselves. Functions that
compute opt-in intervals import SciPy when they are called.
"""

if __name__ != "blendstream.blender":
    raise ImportError(
        f"this folder is imported as blendstream.blender, got {__name__}; "
        "write `import blendstream.blender`, after `make setup` or pip install"
    )

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blendstream.blender.public_names import *  # noqa: F403
else:

    def __getattr__(name: str) -> Any:
        if name.startswith("__") and name != "__all__":
            raise AttributeError(name)
        try:
            return getattr(import_module("blendstream.blender.public_names"), name)
        except ModuleNotFoundError as missing:
            raise ImportError(
                f"blender needs {missing.name}, which a device does without; "
                "install it with: pip install 'blendstream[server]'"
            ) from missing
