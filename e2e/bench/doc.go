// Package bench measures Sluice beside its peers in one run: a [Row] is something that several programs can do, its contestants do it
// in turn so that they share the machine's moods, and [Measure] prints what it cost each of them. Nothing is asserted by time.
//
//	istio  pins and builds the peer istio-cni
package bench
