"""What a real release is drawn with, whatever the settings say."""

import inspect

import agents.commands.jobs
from agents.job_context import Dice, JobContext
from agents.jobs import run_jobs
from blender.noise import ExactNoise
from streams.settings import declared_settings


def test_noise_is_exact_unless_a_test_hands_in_another():
    assert type(Dice().noise) is ExactNoise
    assert inspect.signature(JobContext.build).parameters["dice"].default is None
    assert inspect.signature(run_jobs).parameters["dice"].default is None


def test_the_command_hands_in_none_and_no_setting_names_any():
    """The verb has nothing to choose dice with: its source does not mention them."""
    assert "dice" not in inspect.getsource(agents.commands.jobs)
    names = {f"{setting.section}.{setting.field}" for setting in declared_settings()}
    assert names
    for word in ("noise", "dice", "seed", "random"):
        assert not [name for name in names if word in name]
