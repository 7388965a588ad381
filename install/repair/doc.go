// Package repair decides what becomes of pods of the mesh that started before the plugin was there,
// and so without their redirection: istio-cni's race, with its repair controller's settings
// (REPAIR_*), meanings and order.
//
// Where pods are repaired in place, one gets its redirection as soon as it is seen to lack it. It
// need not have failed before, since what is applied is the same that ADD would have: should one be
// under way, the pod is the same afterwards. Only if it cannot be done, or does not help, and where
// pods are not repaired in place, the next thing that is allowed is done, and that only to pods
// that are seen to fail: deleting goes before labelling. What was repaired is kept in a [Store],
// which a new agent goes on with.
package repair
