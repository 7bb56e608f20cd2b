"""The whole service on this machine with a simulated population, for a first look.

people    who searches for what: the truth that the service never sees
service   the real parts: Kafka, Redis, gateway, worker and jobs, as processes
senders   opt-in users and devices, over HTTP, as real ones would
compare   what was published beside the truth, and the other profile on the same people
view      what a person sees of it while it runs
"""
