// Package doctor looks at what could keep a redirection from working in a network namespace: the kernel and the permissions, settings,
// routing, and other owners of rules.
//
// [Gather] reads and changes nothing; what it may not read is a fact as well. [Judge] is pure: it makes of the facts, and of the
// parameters of a redirection, one [Finding] for each thing worth knowing, with what to do about it.
package doctor
