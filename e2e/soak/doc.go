// Package soak has a test that runs the node agent while thousands of sandboxes are created and
// removed, and checks that the agent keeps nothing of them.
//
// The agent is the program of the image. libcni runs the plugin with the configuration that the
// agent installs, as a container runtime does. The API server is a stand-in. Everything runs in a
// separate mount namespace, and each sandbox in a network namespace. Meanwhile live sandboxes have
// traffic, and now and then their rules are deleted.
//
// The parameters of [TestSoak] are environment variables:
//
//	SLUICE_SOAK=1h            duration; default 20 seconds
//	SLUICE_SOAK_SANDBOXES=n   number of sandboxes created; default 5000 an hour, at least 200
//	SLUICE_SOAK_LIVE=n        number of sandboxes at a time; default 250, or 40 below a minute
//	SLUICE_SOAK_WRITE=1       write the figures to e2e/bench
//
// make soak runs it for an hour and writes the figures.
package soak
