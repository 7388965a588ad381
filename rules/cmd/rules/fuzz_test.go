package main

import (
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/rules"
)

// FuzzInputs reads lines as arguments, and lines that begin with $ as variables. What is accepted must compile.
func FuzzInputs(f *testing.F) {
	for _, lines := range []string{
		"-p\n15001\n-z\n15006\n-u\n1337\n-m\nREDIRECT\n-i\n*\n-x\n\n-b\n*\n-d\n15090,15021,15020\n--log_output_level=default:info",
		"-m\nTPROXY\n-t\n0x539\n-r\n133\n--dual-stack\n--drop-invalid\n--redirect-dns\n--nameserver\nfe80::1%eth0\n-c\neth+\n-k\nvif0",
		"--pod-ip\nfd00::5\n--without\nnat-first\n--strict-istio\n--keep-established\n-o\njson\n-nb80",
		"$ISTIO_OUTBOUND_OWNER_GROUPS=1,2-3\n$PROXY_UID=\n$DUAL_STACK=banana\n$CAPTURE_ALL_DNS=1\n$ISTIO_META_DNS_CAPTURE=true",
		"-i\n::ffff:10.0.0.0/104,127.0.0.0/8,0.0.0.0/0,::/0\n-q\n0-65535\n-o\n53,5432\n--pid\n1\n--netns\n/x\nsurplus",
	} {
		f.Add(lines)
	}
	f.Fuzz(func(t *testing.T, lines string) {
		s, _ := testSystem()
		s.resolvConf = "/dev/null"
		var args []string
		env := map[string]string{}
		for line := range strings.SplitSeq(lines, "\n") {
			if variable, ok := strings.CutPrefix(line, "$"); ok {
				name, value, _ := strings.Cut(variable, "=")
				env[name] = value
				continue
			}
			args = append(args, line)
		}
		s.variable = func(name string) (string, bool) { v, ok := env[name]; return v, ok }

		in := &inputs{sections: ofCapture(sectionNamespace, sectionShow, sectionOutput), tolerated: actionSections}
		in.load()
		rest, err := in.parseFlags("rules", args)
		if err != nil {
			return
		}
		p, err := in.parse(s, rest)
		if err != nil {
			if strings.Contains(err.Error(), "\n\n") || strings.HasPrefix(err.Error(), ":") {
				t.Errorf("an error without text or source: %q", err)
			}
			return
		}
		p.assume()
		redirect, err := s.complete(p, nil)
		if err != nil {
			t.Fatalf("%v: accepted, but incomplete: %v", args, err)
		}
		if err := redirect.Validate(); err != nil {
			t.Fatalf("%v: accepted, but invalid: %v", args, err)
		}
		ruleset := rules.MustCompile(redirect)
		_ = ruleset.String()
		_ = toJSON(ruleset)
	})
}
