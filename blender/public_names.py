"""The public names of `blendstream.blender`; most of them need NumPy."""

from blendstream.blender.noise.exact_noise import ExactNoise, Noise
from blendstream.blender.paper.accuracy import l1_distance, ndcg
from blendstream.blender.paper.blend import blend_probabilities, project_onto_simplex
from blendstream.blender.paper.click_graph import (
    ClickGraph,
    ClickGraphParameters,
    PublicUrlTable,
    get_click_counts,
    get_query_counts,
    release_data,
    select_queries,
)
from blendstream.blender.paper.client import estimate_client_probabilities
from blendstream.blender.paper.head_list import create_head_list
from blendstream.blender.paper.local import local_alg
from blendstream.blender.paper.optin import (
    NoisyCounts,
    OptinEstimates,
    estimate_optin_probabilities,
)
from blendstream.blender.paper.user_groups import partition_users
from blendstream.blender.registry import RANDOMIZERS, randomizer_for
from blendstream.blender.sharp.agreement import Agreement, measure_agreement
from blendstream.blender.values.cell_estimates import Estimates, GroupEstimates
from blendstream.blender.values.cells import Cell, Cells, HeadList, RandomizerSpec
from blendstream.blender.values.errors import BlenderError, HeadListMismatch, ParameterError
from blendstream.blender.values.interfaces import (
    HeadListSelector,
    LocalRandomizer,
    OptinCounts,
    Selection,
)
from blendstream.blender.values.parameters import PrivacyParameters
from blendstream.blender.values.random_source import RandomSource, SystemRandomSource
from blendstream.blender.values.record import Record, normalise

__all__ = [
    "RANDOMIZERS",
    "Agreement",
    "BlenderError",
    "Cell",
    "Cells",
    "ClickGraph",
    "ClickGraphParameters",
    "Estimates",
    "ExactNoise",
    "GroupEstimates",
    "HeadList",
    "HeadListMismatch",
    "HeadListSelector",
    "LocalRandomizer",
    "Noise",
    "NoisyCounts",
    "OptinCounts",
    "OptinEstimates",
    "ParameterError",
    "PrivacyParameters",
    "PublicUrlTable",
    "RandomSource",
    "RandomizerSpec",
    "Record",
    "Selection",
    "SystemRandomSource",
    "blend_probabilities",
    "create_head_list",
    "estimate_client_probabilities",
    "estimate_optin_probabilities",
    "get_click_counts",
    "get_query_counts",
    "l1_distance",
    "local_alg",
    "measure_agreement",
    "ndcg",
    "normalise",
    "partition_users",
    "project_onto_simplex",
    "randomizer_for",
    "release_data",
    "select_queries",
]
