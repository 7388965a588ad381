package agent

import "github.com/sluice-mesh/sluice/compat"

// SetChoose replaces what chooses the engine of the kernel.
func (a *Agent) SetChoose(choose func(compat.BackendName) (compat.Backend, error)) {
	a.kernel.choose = choose
}
