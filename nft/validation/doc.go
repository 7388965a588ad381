// Package validation proves by real connections that a namespace captures what it should.
//
// [Run] opens the connections that the parameters say are captured, as the proxy's user and as the application's, and looks where
// they arrive: at listeners of its own on the proxy's ports, which exist for the few milliseconds of an attempt only, or, when a
// proxy runs already, at the proxy itself. Then it asks the kernel which socket took the connection, and hangs up without having
// sent a byte; it never listens beside a running proxy. What each connection is to meet is what [rules.Ruleset.Explain] says of
// that very packet. Last it reads the rules back.
//
// No privilege is needed to start. What needs one that the process does not have is listed as not checked, with the reason.
package validation
