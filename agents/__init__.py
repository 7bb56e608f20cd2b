"""Who moves it: the Faust agents, the epoch jobs, the gateway, the local stack, the command line."""
