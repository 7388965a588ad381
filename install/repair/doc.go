// Package repair selects the action for mesh pods that started before the plugin was installed, and
// therefore have no redirection. istio-cni calls this the race condition. The settings, their
// meaning and order are the same as in its repair controller (REPAIR_*).
//
// If repair in place is allowed, a pod is redirected as soon as the agent detects that it has no
// rules. The pod need not have failed: the rules are the same that ADD would install, even if an
// ADD is in progress. If the repair fails or does not help, or if repair in place is not allowed,
// the next allowed action is applied to pods that fail: deletion before labelling. Repairs are
// stored in a [Store], which the next agent reads.
package repair
