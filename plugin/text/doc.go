// Package text makes untrusted text fit into an error or a log line: printable, bounded, on one
// line. It also tells how far a misspelt name is from another one.
//
//	fmt.Errorf("%s is not a name", text.Quote(name, 100))
package text
