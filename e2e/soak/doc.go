// Package soak contains a test that runs the node agent while thousands of sandboxes are created
// and removed, and checks that the agent leaks no resources.
//
// The agent is the program sluice-node. libcni runs the plugin with the configuration that the
// agent installs, like a container runtime. The API server is a fake. Everything runs in a separate
// mount namespace, and each sandbox has a network namespace. During the test, live sandboxes open
// connections, and the test deletes the rules of some sandboxes.
//
// The parameters of [TestSoak] are environment variables:
//
//	SLUICE_SOAK=1h            duration, at least 10s; default 20s
//	SLUICE_SOAK_SANDBOXES=n   number of sandboxes created; default 5000 per hour,
//	                          but at least 200
//	SLUICE_SOAK_LIVE=n        number of live sandboxes, at least 2; default 250,
//	                          or 40 if the duration is less than a minute
//	SLUICE_SOAK_WRITE=1       write the figures to e2e/bench
//
// make soak runs the test for an hour and writes the figures.
package soak
