// Package validation tests with real connections whether a network namespace captures the traffic
// that the parameters specify.
//
// [Run] opens the connections that the parameters capture, as the users of the proxy and of the
// application, and observes where each arrives. Without a proxy, listeners of this process take its
// place for the milliseconds of an attempt. With a running proxy, Run looks up the socket that
// received the connection, and closes the connection before any byte is sent. The expected outcome
// of each connection is the result of [diff.Explain] for its first packet. At the end of each
// attempt Run reads the rules and compares them with the parameters.
//
// Run needs no privilege. If a check needs a privilege that the process lacks, its status is
// [NotChecked], with the reason.
//
//	result, err := validation.Run(ns, validation.Options{Redirect: redirect})
//	if err == nil && result.Outcome() == validation.Fails {
//		...
//	}
package validation
