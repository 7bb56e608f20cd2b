"""The noise of a real release, whatever the settings are."""

import inspect
from dataclasses import fields

import blendstream.agents.commands.jobs
from blendstream.agents.jobs.job_context import (
    ContextOverrides,
    JobContext,
    RandomnessSources,
    versions,
)
from blendstream.blender.noise.exact_noise import ExactNoise
from blendstream.blender.noise.opendp_noise import OpenDPNoise
from blendstream.streams.settings import declared_settings
from blendstream.streams.version import version_of


def test_noise_is_exact_unless_a_test_hands_in_another():
    assert type(RandomnessSources().noise) is ExactNoise
    (dice,) = (field for field in fields(JobContext) if field.name == "dice")
    assert dice.default_factory is RandomnessSources
    assert not ContextOverrides.__required_keys__


def test_the_command_hands_in_none_and_no_setting_names_any():
    """The verb has nothing to choose dice with: its source does not mention them."""
    assert "dice" not in inspect.getsource(blendstream.agents.commands.jobs)
    names = {f"{setting.section}.{setting.field}" for setting in declared_settings()}
    assert names
    for word in ("noise", "dice", "seed", "random", "sampler"):
        assert not [name for name in names if word in name]


def test_publications_name_what_drew_their_noise():
    """OpenDP only where a program handed it in: it is not installed with the server."""
    usual, opendp = versions(RandomnessSources().noise), versions(OpenDPNoise())

    assert usual["noise"] == "ExactNoise"
    assert "opendp" not in usual
    assert opendp["noise"] == "OpenDPNoise"
    assert opendp["opendp"] == version_of("opendp")
    assert "noise" not in versions()
