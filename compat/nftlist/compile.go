package nftlist

import (
	"bytes"
	"encoding/json"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/rules"
)

// A compiler translates the statements of a rule to expressions of nf_tables, as nft does. Package
// nft decodes these expressions like expressions that it reads from the kernel.
type compiler struct {
	sets     *setBuilder
	compiled []any // the expressions of complete statements

	// network is the network protocol, ip or ip6, that the table or earlier statements imply.
	// transport is the transport protocol that earlier statements imply.
	network   string
	transport *byte

	// added contains the expressions of the current statement. implied contains the conditions that
	// the statement implies, which nft adds before it.
	implied, added []any
	// usedRegisters is the number of registers that the current statement uses.
	usedRegisters int
	// computations is the number of computations, such as hashes, in the current statement.
	computations int
	// lacksRegisters is set if the statement needs more registers than the kernel has.
	lacksRegisters bool
	// omittedFamily is the family, ip or ip6, to which a condition that nft does not list may limit
	// the rule. isOtherFamily is set in a compiler that translates the rule for the packets of the
	// other family; see compileRule.
	omittedFamily string
	isOtherFamily bool
}

// newCompiler returns a compiler for a rule of a table.
func newCompiler(family string, sets *setBuilder) *compiler {
	c := &compiler{sets: sets}
	if family != "inet" {
		c.network = family
	}
	return c
}

// add adds an expression to the current statement.
func (c *compiler) add(e expr.Any) { c.added = append(c.added, e) }

// addImplied adds a condition before the current statement.
func (c *compiler) addImplied(expressions ...expr.Any) {
	for _, e := range expressions {
		c.implied = append(c.implied, e)
	}
}

// compileStatement translates a statement. An unsupported statement becomes a [rules.Unknown] that
// may have any effect, or an unknown condition if it is a comparison that always has the same
// result for equal packets.
func (c *compiler) compileStatement(s statement) {
	c.implied, c.added, c.usedRegisters, c.computations, c.lacksRegisters = nil, nil, 0, 0, false
	network, transport := c.network, c.transport
	if c.translate(s) && !c.lacksRegisters {
		c.compiled = append(append(c.compiled, c.implied...), c.added...)
		return
	}
	c.network, c.transport = network, transport
	c.sets.in.recordChanges(s)
	u := rules.Unknown{Text: s.text}
	if s.kind == "match" && !mayVary(s.body) {
		u.Effect = rules.Reads
	}
	c.compiled = append(c.compiled, u)
}

// mayVary reports whether a comparison may have different results for equal packets, because it
// depends on random or changing values.
func mayVary(match json.RawMessage) bool {
	for _, word := range []string{
		"numgen", "random", "hash", "osf", "time", "day", "hour", "count", "expiration", "bytes",
		"packets",
	} {
		if bytes.Contains(match, []byte(word)) {
			return true
		}
	}
	return false
}

// translate adds the expressions of a statement. It returns false if the statement is not
// supported.
func (c *compiler) translate(s statement) bool {
	switch s.kind {
	case "match":
		return c.match(s.body)
	case "vmap":
		return c.verdictMap(s.body)
	case "mangle":
		return c.mangle(s.body)
	case "accept", "drop", "return", "continue", "jump", "goto":
		v, ok := verdictOf(s.kind, s.body)
		if ok {
			c.add(v)
		}
		return ok
	case "log":
		return c.log(s.body)
	case "notrack":
		c.add(&expr.Notrack{})
		return isNull(s.body)
	case "counter":
		return c.counter(s.body)
	case "limit":
		return c.limit(s.body)
	case "quota":
		return c.quota(s.body)
	case "ct count":
		return c.connectionLimit(s.body)
	case "ct helper":
		return c.object(objectCTHelper, s.body)
	case "ct timeout":
		return c.object(objectCTTimeout, s.body)
	case "ct expectation":
		return c.object(objectCTExpectation, s.body)
	case "set":
		return c.changeSet(s.body)
	case "dnat", "snat", "masquerade", "redirect":
		return c.translation(s.kind, s.body)
	case "tproxy":
		return c.tproxy(s.body)
	case "reject":
		return c.reject(s.body)
	}
	return false
}

// verdictOf decodes a verdict.
func verdictOf(kind string, body json.RawMessage) (*expr.Verdict, bool) {
	verdicts := map[string]expr.VerdictKind{
		"accept": expr.VerdictAccept, "drop": expr.VerdictDrop, "return": expr.VerdictReturn,
		"continue": expr.VerdictContinue,
	}
	if v, ok := verdicts[kind]; ok {
		return &expr.Verdict{Kind: v}, isNull(body)
	}
	var to struct{ Target string }
	v := &expr.Verdict{Kind: expr.VerdictJump}
	if kind == "goto" {
		v.Kind = expr.VerdictGoto
	}
	if kind != "jump" && kind != "goto" || !exactly(body, &to) || !isName(to.Target) {
		return nil, false
	}
	v.Chain = to.Target
	return v, true
}

// isName reports whether the kernel accepts the name (NFT_NAME_MAXLEN).
func isName(name string) bool { return name != "" && len(name) < unix.NFT_NAME_MAXLEN }

// A register is a register of nf_tables, counted in units of 4 bytes.
type register int

// number returns the number of the register as the kernel reports it.
func (r register) number() uint32 {
	if r%4 == 0 {
		return unix.NFT_REG_1 + uint32(r)/4
	}
	return unix.NFT_REG32_00 + uint32(r)
}

// allocate reserves registers for a value of size bytes, and returns the first.
func (c *compiler) allocate(size int) register {
	reg := register(c.usedRegisters)
	c.usedRegisters += registersFor(size)
	return reg
}

// registersFor returns the number of registers of 4 bytes that are reserved for a value of size
// bytes. Like nft it reserves whole registers of 16 bytes.
func registersFor(size int) int { return (size + 15) / 16 * 4 }

// words returns the number of registers of 4 bytes that a value of size bytes occupies.
func words(size int) int { return (size + 3) / 4 }

// sizeOf returns the size in bytes of a concatenation. Each of its values begins at a register.
func sizeOf(fields []field) int {
	if len(fields) == 1 {
		return fields[0].size
	}
	size := 0
	for _, f := range fields {
		size += 4 * words(f.size)
	}
	return size
}

// load allocates registers and loads fields to them. inInterval is set if the fields are compared
// with intervals, and must therefore be in network byte order. load returns false if there are not
// enough registers.
func (c *compiler) load(fields []field, inInterval bool) (register, bool) {
	reg := c.allocate(sizeOf(fields))
	if c.usedRegisters > maxFields {
		return 0, false
	}
	c.loadAt(reg, fields, inInterval)
	return reg, true
}

// loadAt loads fields to registers.
func (c *compiler) loadAt(to register, fields []field, inInterval bool) {
	for _, f := range fields {
		f.load(c, to, f.size)
		if f.isHostOrder && inInterval {
			c.add(&expr.Byteorder{
				SourceRegister: to.number(), DestRegister: to.number(), Op: expr.ByteorderHton,
				Len: uint32(f.size), Size: uint32(max(f.size, 2)),
			})
		}
		to += register(words(f.size))
	}
}

// compile translates the rules of a chain.
func (in *reader) compile(c chainObject, sets *setBuilder) []nft.Rule {
	var compiledRules []nft.Rule
	for _, r := range in.rules[objectID{c.Family, c.Table, c.Name}] {
		compiled := compileRule(c.Family, sets, r.Statements)
		for _, expressions := range compiled {
			compiledRules = append(compiledRules, nft.Rule{
				Handle: rules.Handle(r.Handle), Line: r.line, Comment: r.Comment,
				Expressions: expressions, Incomplete: len(compiled) > 1,
			})
		}
	}
	return compiledRules
}

// compileRule translates a rule and returns the expressions of one or two rules. If nft may have
// omitted a condition on the family of packets, the result is a rule for each family. The rule for
// the other family has an unknown condition.
func compileRule(family string, sets *setBuilder, statements []statement) [][]any {
	c := newCompiler(family, sets)
	for _, s := range statements {
		c.compileStatement(s)
	}
	if c.omittedFamily == "" {
		return [][]any{c.compiled}
	}
	other := map[string]string{"ip": "ip6", "ip6": "ip"}[c.omittedFamily]
	var byFamily [][]any
	for _, network := range []string{c.omittedFamily, other} {
		limited := newCompiler(family, sets)
		limited.needNetwork(network)
		limited.compiled = limited.implied
		if network == other {
			// nft compiles the rule without the omitted condition like a rule for both families.
			limited.network, limited.isOtherFamily = "", true
		}
		for _, s := range statements {
			limited.compileStatement(s)
		}
		byFamily = append(byFamily, limited.compiled)
	}
	return byFamily
}

// mayOmitFamily records that nft may have omitted, before the current statement, a condition that
// limits the rule to a family, ip or ip6.
func (c *compiler) mayOmitFamily(family string) {
	switch {
	case c.network != "":
	case c.isOtherFamily:
		c.mayOmit("meta nfproto")
	default:
		c.omittedFamily = family
	}
}

// mayOmit adds an unknown condition before the current statement. It represents a condition that
// nft may have omitted.
func (c *compiler) mayOmit(condition string) {
	c.implied = append(c.implied, rules.Unknown{
		Text: condition + ", which nft may leave out", Effect: rules.Reads,
	})
}
