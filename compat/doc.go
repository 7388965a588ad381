// Package compat handles the rules of iptables-legacy, for nodes and namespaces that have them: it reads the kernel's tables into the
// model, and removes from them what istio-iptables left. Package [xtables] is the interface to the kernel.
package compat
