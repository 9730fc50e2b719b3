"""Late arrivals of real flights: 336,776 departures from New York City in 2013."""
