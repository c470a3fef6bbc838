"""For tests of what is built on Bough: conformance suites, builders, and executors that only pretend to work.

`policy_conformance.PolicySuite` and `store_conformance.StoreSuite` say what every placement policy and every store
must do: subclass one in a test of yours, for pytest. `builders` makes tasks, arrays, groups and executors in a few
words. `emulated_executors` are thousands of executors in one process (`bough executor start --emulate N`).

`site_conformance` is for kinds of sites.
"""
