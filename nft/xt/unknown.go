package xt

import (
	"bytes"
	"fmt"

	"github.com/sluice-mesh/sluice/rules"
)

// unknownMatch returns a match that the model has no word for.
func unknownMatch(x Extension) rules.Unknown {
	return withState(rules.Unknown{
		Text:   fmt.Sprintf("match %s revision %d", x.Name, x.Revision),
		Effect: matchEffect(x), Data: identity(x),
	}, x)
}

// unknownTarget returns a target that the model has no word for.
func unknownTarget(x Extension, effect rules.Effect) rules.Unknown {
	return rules.Unknown{
		Text:   fmt.Sprintf("target %s revision %d", x.Name, x.Revision),
		Effect: effect, Data: identity(x),
	}
}

// ownSize is how many bytes of a structure the program writes that makes the rule. What follows is
// the kernel's: pointers and state, which it shows before Linux 4.11, and zeros since.
func ownSize(x Extension) int {
	switch (key{x.Name, x.Revision}) {
	case key{"connlimit", 1}: // struct xt_connlimit_info
		return 24
	case key{"limit", 0}: // struct xt_rateinfo
		return 8
	case key{"nfacct", 0}, key{"nfacct", 1}: // struct nf_acct_info
		return 32
	case key{"quota", 0}, key{"statistic", 0}: // struct xt_quota_info, struct xt_statistic_info
		return 16
	case key{"CT", 0}, key{"CT", 1}, key{"CT", 2}:
		return ctKernel[x.Revision]
	}
	return len(x.Data)
}

// identity returns what is the same for extensions that are the same: the bytes of the structure
// without the zeros at its end, which may be padding.
func identity(x Extension) string {
	if refersElsewhere(x) {
		return rules.NoData
	}
	data := x.Data[:min(ownSize(x), len(x.Data))]
	return string(bytes.TrimRight(data, "\x00"))
}

// bpfBytecode is the mode of struct xt_bpf_info_v1 in which the structure holds the program, at the
// place where others name a file (XT_BPF_MODE_BYTECODE).
const bpfBytecode = 0

// refersElsewhere reports whether what an extension does is said in an object that is not read and
// may change under the same name or number: a set, a program.
func refersElsewhere(x Extension) bool {
	switch x.Name {
	case "set", "SET":
		return true
	case "bpf":
		return x.Revision > 0 && (len(x.Data) < 2 || native.Uint16(x.Data) != bpfBytecode)
	}
	return false
}
