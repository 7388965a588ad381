// Package validation tests by real connections whether a network namespace captures what the
// parameters say.
//
// [Run] opens the connections that the parameters capture, as the user of the proxy and as that of
// the application, and observes where each arrives. Without a proxy, listeners take its place for
// the milliseconds of an attempt. With a running proxy, Run asks the kernel which socket has the
// connection, and closes it before a byte is sent. The expected outcome of each connection is what
// [diff.Explain] says of its first packet. At the end Run reads the rules back and compares them.
//
// Run needs no privilege. Checks that need one the process does not have are listed as not checked,
// with the reason.
//
//	result, err := validation.Run(ns, validation.Options{Redirect: redirect})
//	if err == nil && result.Outcome() == validation.Fails {
//		...
//	}
package validation
