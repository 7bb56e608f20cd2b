"""The names of the baselines' curves, which `evaluation.baselines` measures and figures show."""

from typing import Final

__all__ = [
    "ALONE",
    "GIVEN",
    "LDP_MINER",
    "LDP_MINER_PADDED",
    "LDP_MINER_QUERIES",
    "NOTHING",
    "PEM",
]

#: A trusted curator who uses the opt-in users' records, and asks no device.
ALONE: Final = "curator, opt-in users alone"
#: Devices that are told which records to answer about.
GIVEN: Final = "local, candidates given"
#: Devices that also discover the records.
PEM: Final = "local, discovered (PEM)"
#: LDPMiner: about records, about queries, and about records with padding.
LDP_MINER: Final = "LDPMiner"
LDP_MINER_QUERIES: Final = "LDPMiner, queries"
LDP_MINER_PADDED: Final = "LDPMiner, padded"
#: A list without records.
NOTHING: Final = "nothing published"
