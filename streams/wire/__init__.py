"""What travels: the documents and frames that devices, gateways, workers and jobs exchange.

Free of Kafka, Faust and Redis, because devices share it.
"""
