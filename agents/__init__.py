"""Who moves it: the Faust agents, epoch jobs, gateway, local stack and command line."""
