// Package soak has a test that runs the node agent while thousands of sandboxes come and go, and
// holds that it keeps nothing of them.
//
// The agent is the program that the image has, the plugin is executed by libcni with the
// configuration that the agent installs, as a container runtime does, and the API server is a
// double. All of it runs in a mount namespace of its own, each sandbox in a network namespace of
// its own. At the same time live sandboxes have traffic, and lose their rules now and then.
//
// [TestSoak] takes its length from the environment:
//
//	SLUICE_SOAK=1h            how long; 20 seconds by default
//	SLUICE_SOAK_SANDBOXES=n   how many sandboxes come and go; as many as 5000 an hour, and at least 200, by default
//	SLUICE_SOAK_LIVE=n        how many of them are there at a time; 250, or 40 in less than a minute
//	SLUICE_SOAK_WRITE=1       write the figures to e2e/bench
//
// make soak runs it for an hour and writes.
package soak
