// Package repair selects the action for mesh pods that started without the plugin, usually before
// it was installed, and therefore have no redirection. istio-cni calls this the race condition. The
// settings (REPAIR_*) have the same meaning, and the actions the same precedence, as in istio-cni's
// repair controller.
//
// If repair in place is allowed, a pod is redirected as soon as the agent detects that it has no
// rules, whether or not the pod has failed. It gets the rules that ADD would install, so that a
// repair during an ADD does no harm. If repair in place is not allowed, fails or does not help,
// pods that fail are deleted or, if deletion is not allowed, labeled. Repairs in place are stored
// in a [Store], which the agent reads after a restart.
package repair
