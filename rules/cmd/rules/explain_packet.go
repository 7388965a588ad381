package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// packetFlags contains the values of the flags of explain that describe a packet, by flag.
type packetFlags map[string]string

// packetTable lists the parameters that describe a packet.
func packetTable() []parameter {
	var table []parameter
	for _, row := range [][3]string{
		{"out", "PROTOCOL", "packet that leaves the pod"},
		{"in", "PROTOCOL", "packet that arrives at the pod"},
		{"from", "ADDRESS[:PORT]", "source of the packet"},
		{"to", "ADDRESS[:PORT]", "destination of the packet"},
		{"dev", "NAME", "interface of the packet"},
		{"uid", "N", "user that sends the packet"},
		{"gid", "N", "group that sends the packet"},
		{"state", "new|established|related|invalid|untracked", "conntrack state of the packet"},
	} {
		table = append(table, parameter{
			flag: row[0], value: row[1], section: sectionExplain, help: row[2],
			set: func(p *parameters, text string) error {
				if text == "" || strings.ContainsAny(text, " \t\n") {
					return errors.New("want one word")
				}
				p.packet[row[0]] = text
				return nil
			},
		})
	}
	return table
}

// text returns the description of the packet from the flags, followed by the arguments. It is empty
// if no flag is given.
func (f packetFlags) text(args []string) (string, error) {
	if len(f) == 0 {
		return "", nil
	}
	var faults []error
	if f["out"] != "" && f["in"] != "" {
		faults = append(faults, errors.New("--out and --in: want one of them"))
	}
	var missing []string
	if f["out"] == "" && f["in"] == "" {
		missing = append(missing, "--out or --in with its protocol")
	}
	for _, flag := range []string{"from", "to"} {
		if f[flag] == "" {
			missing = append(missing, "--"+flag)
		}
	}
	if len(missing) > 0 {
		faults = append(faults,
			fmt.Errorf("the packet that flags describe lacks %s", strings.Join(missing, ", ")))
	}
	if len(faults) > 0 {
		return "", errors.Join(faults...)
	}
	words := []string{"out", f["out"]}
	if f["in"] != "" {
		words = []string{"in", f["in"]}
	}
	words = append(words, f["from"], ">", f["to"])
	for _, option := range []string{"dev", "uid", "gid", "state"} {
		if f[option] != "" {
			words = append(words, option, f[option])
		}
	}
	return strings.Join(append(words, args...), " "), nil
}

// replaceDashArrows replaces the arrow -> of a packet, which looks like a flag, by >.
func replaceDashArrows(args []string) []string {
	replaced := slices.Clone(args)
	for i, a := range replaced {
		if a == "->" {
			replaced[i] = ">"
		}
	}
	return replaced
}

// packetTexts returns the packets in the arguments. If every argument has several words, each is a
// packet. Otherwise the arguments are the words of packets, and a packet begins with its direction.
func packetTexts(args []string) []string {
	if !slices.ContainsFunc(args, func(a string) bool { return len(strings.Fields(a)) < 2 }) {
		return args
	}
	var packets [][]string
	last := ""
	for _, word := range strings.Fields(strings.Join(args, " ")) {
		// After dev, "in" and "out" are names of interfaces.
		if n := len(packets); n == 0 || (word == "in" || word == "out") && last != "dev" {
			packets = append(packets, []string{word})
		} else {
			packets[n-1] = append(packets[n-1], word)
		}
		last = word
	}
	var texts []string
	for _, words := range packets {
		const arrow = 3 // its index in DIRECTION PROTOCOL SOURCE > DESTINATION
		if len(words) > arrow && !slices.ContainsFunc(words, rules.IsArrow) {
			words = slices.Insert(words, arrow, ">")
		}
		texts = append(texts, strings.Join(words, " "))
	}
	return texts
}
