"""For tests of what is built on Bough: conformance suites, builders, and executors that only pretend to work."""
