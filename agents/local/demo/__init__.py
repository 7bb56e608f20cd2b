"""The demo: the whole service on this machine with a simulated population.

people    the population and its searches: the truth, which the service never sees
service   the real parts: Kafka, Redis, gateway, worker and jobs, as processes
senders   opt-in users and devices, which send over HTTP as real ones would
compare   accuracy of the publications, and of the other profile on the same people
view      the output while it runs
"""
