package xt

import (
	"bytes"
	"fmt"

	"github.com/sluice-mesh/sluice/rules"
)

// unknownMatch returns a match that the model cannot represent.
func unknownMatch(family rules.Family, x Extension) rules.Unknown {
	u := rules.Unknown{Effect: matchEffect(x), Ignores: MatchIgnores(x.Name)}
	text, identifiesMatch := matchText(family, x)
	if identifiesMatch {
		u.Text = text
	} else {
		u.Text, u.Data = fmt.Sprintf("match %s revision %d", x.Name, x.Revision), identity(x)
	}
	return withState(u, x)
}

// unknownTarget returns a target that the model cannot represent.
func unknownTarget(x Extension, effect rules.Effect) rules.Unknown {
	return rules.Unknown{
		Text:   fmt.Sprintf("target %s revision %d", x.Name, x.Revision),
		Effect: effect, Data: identity(x),
	}
}

// userSize returns the size of the part of a structure that userspace sets. The rest contains
// pointers and state of the kernel. Kernels since 4.11 report it as zeros.
func userSize(x Extension) int {
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
		return ctUserSizes[x.Revision]
	}
	return len(x.Data)
}

// identity returns the bytes that identify an extension: the structure without trailing zeros,
// which may be padding. If the behavior of the extension depends on an object that is not read,
// identity returns rules.NoData, which equals nothing.
func identity(x Extension) string {
	if dependsOnExternalObject(x) {
		return rules.NoData
	}
	data := x.Data[:min(userSize(x), len(x.Data))]
	return string(bytes.TrimRight(data, "\x00"))
}

// bpfBytecode is XT_BPF_MODE_BYTECODE, the mode of struct xt_bpf_info_v1 in which the structure
// contains the program itself. In other modes it only refers to a program.
const bpfBytecode = 0

// dependsOnExternalObject reports whether the behavior of an extension depends on a set or a
// program that is not read. Such an object may change under the same name or number.
func dependsOnExternalObject(x Extension) bool {
	switch x.Name {
	case "set", "SET":
		return true
	case "bpf":
		return x.Revision > 0 && (len(x.Data) < 2 || native.Uint16(x.Data) != bpfBytecode)
	}
	return false
}
