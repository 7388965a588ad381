package xt

import (
	"fmt"
	"strings"
)

// This file formats the match u32, which compares bits of the packet (struct xt_u32).

// Sizes of struct xt_u32 and its parts.
const (
	u32MaxItems        = 11 // XT_U32_MAXSIZE + 1
	u32LocationSize    = 8
	u32ValueSize       = 8
	u32ValuesOffset    = u32MaxItems * u32LocationSize
	u32CountsOffset    = u32ValuesOffset + u32MaxItems*u32ValueSize
	u32TestSize        = u32CountsOffset + 4
	u32TestCountOffset = u32MaxItems * u32TestSize
	u32InvertOffset    = u32TestCountOffset + 1
	u32MinimumLength   = u32InvertOffset + 1
)

// u32Operators contains the operators in the order of enum xt_u32_ops.
var u32Operators = [...]string{"&", "<<", ">>", "@"}

// U32Text returns the text of the match u32. The tests are in the format of iptables-save.
func U32Text(not bool, tests string) string {
	return fmt.Sprintf("-m u32 %s--u32 %s", negation(not), tests)
}

// u32Text decodes struct xt_u32 as u32_dump in extensions/libxt_u32.c does.
func u32Text(data []byte) (string, bool) {
	if len(data) < u32MinimumLength || data[u32TestCountOffset] > u32MaxItems {
		return "", false
	}
	var tests []string
	for i := range int(data[u32TestCountOffset]) {
		test := data[i*u32TestSize:]
		numbers, values := int(test[u32CountsOffset]), int(test[u32CountsOffset+1])
		if numbers == 0 || numbers > u32MaxItems || values == 0 || values > u32MaxItems {
			return "", false
		}
		var b strings.Builder
		for j := range numbers {
			location := test[j*u32LocationSize:]
			if operator := location[4]; j > 0 {
				if int(operator) >= len(u32Operators) {
					return "", false
				}
				b.WriteString(u32Operators[operator])
			}
			fmt.Fprintf(&b, "0x%x", native.Uint32(location))
		}
		b.WriteString("=")
		for j := range values {
			value := test[u32ValuesOffset+j*u32ValueSize:]
			if j > 0 {
				b.WriteString(",")
			}
			first, last := native.Uint32(value), native.Uint32(value[4:])
			fmt.Fprintf(&b, "0x%x", first)
			if last != first {
				fmt.Fprintf(&b, ":0x%x", last)
			}
		}
		tests = append(tests, b.String())
	}
	return U32Text(data[u32InvertOffset] != 0, strings.Join(tests, "&&")), true
}
