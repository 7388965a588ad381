package agent

import "github.com/sluice-mesh/sluice/compat"

// SetChoose replaces the function that chooses the backend of the kernel.
func (a *Agent) SetChoose(choose func(compat.BackendName) (compat.Backend, error)) {
	a.kernel.choose = choose
}
