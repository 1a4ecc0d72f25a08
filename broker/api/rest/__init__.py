"""REST over HTTP exchanges: routes, bodies, system parameters, errors."""
