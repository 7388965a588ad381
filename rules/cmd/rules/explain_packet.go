package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// packetFlags contains the values of the flags of explain that describe a packet.
type packetFlags struct {
	words     map[string]string // by flag
	isInvalid bool              // a word is invalid
}

// packetTable lists the parameters that describe a packet.
func packetTable() []parameter {
	var table []parameter
	for _, row := range []struct {
		flag, value, help string
		check             func(word string) error
	}{
		{"out", "PROTOCOL", "packet that leaves the pod", checks(rules.ParseProtocol)},
		{"in", "PROTOCOL", "packet that arrives at the pod", checks(rules.ParseProtocol)},
		{"from", "ADDRESS[:PORT]", "source of the packet", checks(parseEndpoint)},
		{"to", "ADDRESS[:PORT]", "destination of the packet", checks(parseEndpoint)},
		{"dev", "NAME", "interface of the packet", checkOption("dev")},
		{"uid", "N", "user that sends the packet", checks(rules.ParseMark)},
		{"gid", "N", "group that sends the packet", checks(rules.ParseMark)},
		{
			"state", "new|established|related|invalid|untracked", "conntrack state of the packet",
			checkOption("state"),
		},
	} {
		table = append(table, parameter{
			flag: row.flag, value: row.value, section: sectionExplain, help: row.help,
			set: func(p *parameters, text string) error {
				p.packet.words[row.flag] = text
				err := errors.New("want one word")
				if text != "" && !strings.ContainsAny(text, " \t\n") {
					err = row.check(text)
				}
				p.packet.isInvalid = p.packet.isInvalid || err != nil
				return err
			},
		})
	}
	return table
}

// checks returns a function that returns the error of a parser.
func checks[T any](parse func(string) (T, error)) func(word string) error {
	return func(word string) error {
		_, err := parse(word)
		return err
	}
}

// checkOption returns a function that returns the error of [rules.ParsePacket] for the value of an
// option, without the name of the option.
func checkOption(name string) func(value string) error {
	return func(value string) error {
		_, err := rules.ParsePacket("out icmp 192.0.2.1 > 192.0.2.2 " + name + " " + value)
		if err == nil {
			return nil
		}
		return errors.New(strings.TrimPrefix(errors.Unwrap(err).Error(), name+" "))
	}
}

// text returns the description of the packet from the flags, followed by the arguments. It is empty
// if no flag is given, or a word is invalid.
func (f packetFlags) text(args []string) (string, error) {
	if len(f.words) == 0 {
		return "", nil
	}
	var faults []error
	if f.words["out"] != "" && f.words["in"] != "" {
		faults = append(faults, errors.New("--out and --in: want one of them"))
	}
	var missing []string
	if f.words["out"] == "" && f.words["in"] == "" {
		missing = append(missing, "--out or --in with its protocol")
	}
	for _, flag := range []string{"from", "to"} {
		if f.words[flag] == "" {
			missing = append(missing, "--"+flag)
		}
	}
	if len(missing) > 0 {
		faults = append(faults,
			fmt.Errorf("the packet that flags describe lacks %s", strings.Join(missing, ", ")))
	}
	if len(faults) > 0 || f.isInvalid {
		return "", errors.Join(faults...)
	}
	words := []string{"out", f.words["out"]}
	if f.words["in"] != "" {
		words = []string{"in", f.words["in"]}
	}
	words = append(words, f.words["from"], ">", f.words["to"])
	for _, option := range []string{"dev", "uid", "gid", "state"} {
		if f.words[option] != "" {
			words = append(words, option, f.words[option])
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
