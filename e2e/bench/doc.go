// Package bench measures Sluice beside its peers in one run: a [Row] is something that several
// programs can do, its contestants do it in turn so that they share the machine's moods, and
// [Measure] returns what it cost each of them. Nothing is asserted by time.
//
//	report  results, and the page and the plots that they are rendered as; it measures nothing
//	istio   pins and builds the peer istio-cni
package bench
