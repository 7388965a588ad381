package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// packetFlags are the flags of explain that describe a packet.
type packetFlags struct{ out, in, from, to, dev, uid, gid, state string }

// packetTable lists the parameters that describe a packet.
func packetTable() []parameter {
	row := func(flag, value, help string, field func(*packetFlags) *string) parameter {
		return parameter{
			flag: flag, value: value, section: sectionExplain, help: help,
			set: func(p *parameters, text string) error {
				if text == "" || strings.ContainsAny(text, " \t\n") {
					return errors.New("want one word")
				}
				*field(&p.packet) = text
				return nil
			},
		}
	}
	return []parameter{
		row("out", "PROTOCOL", "packet that leaves the pod",
			func(f *packetFlags) *string { return &f.out }),
		row("in", "PROTOCOL", "packet that arrives at the pod",
			func(f *packetFlags) *string { return &f.in }),
		row("from", "ADDRESS[:PORT]", "source of the packet",
			func(f *packetFlags) *string { return &f.from }),
		row("to", "ADDRESS[:PORT]", "destination of the packet",
			func(f *packetFlags) *string { return &f.to }),
		row("dev", "NAME", "interface of the packet",
			func(f *packetFlags) *string { return &f.dev }),
		row("uid", "N", "user that sends the packet",
			func(f *packetFlags) *string { return &f.uid }),
		row("gid", "N", "group that sends the packet",
			func(f *packetFlags) *string { return &f.gid }),
		row("state", "new|established|related|invalid|untracked", "conntrack state of the packet",
			func(f *packetFlags) *string { return &f.state }),
	}
}

// text returns the description of the packet from the flags, followed by the arguments. It is empty
// if no flag is given.
func (f packetFlags) text(args []string) (string, error) {
	if f == (packetFlags{}) {
		return "", nil
	}
	var faults []error
	if f.out != "" && f.in != "" {
		faults = append(faults, errors.New("--out and --in: want one of them"))
	}
	var missing []string
	if f.out == "" && f.in == "" {
		missing = append(missing, "--out or --in with its protocol")
	}
	if f.from == "" {
		missing = append(missing, "--from")
	}
	if f.to == "" {
		missing = append(missing, "--to")
	}
	if len(missing) > 0 {
		faults = append(faults,
			fmt.Errorf("the packet that flags describe lacks %s", strings.Join(missing, ", ")))
	}
	if len(faults) > 0 {
		return "", errors.Join(faults...)
	}
	words := []string{"out", f.out}
	if f.in != "" {
		words = []string{"in", f.in}
	}
	words = append(words, f.from, ">", f.to)
	for _, option := range [][2]string{
		{"dev", f.dev}, {"uid", f.uid}, {"gid", f.gid}, {"state", f.state},
	} {
		if option[1] != "" {
			words = append(words, option[0], option[1])
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
