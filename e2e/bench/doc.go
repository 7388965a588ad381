// Package bench compares Sluice with its peers in one run. A [Row] is a task that several programs
// can do. The candidates of a row perform the task in turn, so that changes of the machine's speed
// affect all candidates alike. [Measure] returns the cost of each candidate. No test fails because
// of a measured time.
//
//	report  contains the results, and renders them as a page with plots
//	istio   pins and builds the peer istio-cni
package bench
