// Package text makes untrusted text fit into an error or a log line: bounded, and quoted on one
// line. (Printable of package rules makes it printable without quotes.) It shortens lists, and
// computes the edit distance between names, to recognize a misspelled name.
//
//	fmt.Errorf("%s is not a name", text.Quote(name, 100))
package text
