package compat

import (
	"errors"
	"io/fs"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/compat/xtables"
	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

// encodeForKernel is encodeRule with the target in the newest revision that the kernel has, of
// those that say it. iptables-legacy-save prints no other: for older ones it writes "[unsupported
// revision]", though the kernel takes them. If the kernel cannot be asked, it is the oldest, which
// every kernel has.
func encodeForKernel(family rules.Family, r *rules.Rule) (xtables.Rule, error) {
	encoded, err := encodeRule(family, r)
	if err != nil {
		return encoded, err
	}
	target := encoded.Target()
	if target.Name == "" {
		return encoded, nil
	}
	for _, x := range xt.Newer(extension(target)) {
		if newer := kernelExtension(x); kernelHas(family, newer) {
			return xtables.NewRule(family, encoded.Header(), encoded.Matches(), xtables.Target{Extension: newer})
		}
	}
	return encoded, nil
}

// targetAnswers are the kernel's, true or false by feature: they do not change while it runs.
var targetAnswers sync.Map

// kernelHas reports whether the kernel is known to have a revision of a target. Asking needs
// CAP_NET_ADMIN for the namespace of the thread, and makes the kernel load the target's module.
func kernelHas(family rules.Family, x xtables.Extension) bool {
	f := xtables.Feature{Family: family, Kind: xtables.KindTarget, Name: x.Name, Revision: x.Revision}
	if has, known := targetAnswers.Load(f); known {
		return has.(bool)
	}
	err := xtables.Probe(nil, f)
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EPROTONOSUPPORT) {
		targetAnswers.Store(f, err == nil)
	}
	return err == nil
}
