package nftlist

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// bytesOf converts n, in a unit of nft, to bytes.
func bytesOf(n uint64, unit string) (uint64, bool) {
	factor, ok := map[string]uint64{
		"bytes": 1, "kbytes": 1 << 10, "mbytes": 1 << 20, "gbytes": 1 << 30,
	}[unit]
	if !ok || n > ^uint64(0)/factor {
		return 0, false
	}
	return n * factor, true
}

// The types of named objects (NFT_OBJECT_* in linux/netfilter/nf_tables.h).
const (
	objectCounter       = 1
	objectQuota         = 2
	objectCTHelper      = 3
	objectLimit         = 4
	objectCTTimeout     = 7
	objectCTExpectation = 9
)

// operationDelete is NFT_DYNSET_OP_DELETE, which package unix lacks.
const operationDelete = 2

// object translates the use of a named object. It returns false if body is not a name.
func (c *compiler) object(kind int, body json.RawMessage) bool {
	var name string
	if json.Unmarshal(body, &name) != nil || !isName(name) {
		return false
	}
	c.add(&expr.Objref{Type: kind, Name: name})
	return true
}

// log translates the statement log, whose options do not affect packets.
func (c *compiler) log(body json.RawMessage) bool {
	var options struct {
		Prefix, Level  string
		Group, Snaplen json.RawMessage
		Flags          flagNames
		QueueThreshold json.RawMessage `json:"queue-threshold"`
	}
	c.add(&expr.Log{})
	return isNull(body) || exactly(body, &options)
}

// counter translates the statement counter.
func (c *compiler) counter(body json.RawMessage) bool {
	if c.object(objectCounter, body) {
		return true
	}
	var object struct{ Packets, Bytes uint64 }
	if !isNull(body) && !exactly(body, &object) {
		return false
	}
	c.add(&expr.Counter{Packets: object.Packets, Bytes: object.Bytes})
	return true
}

// limit translates the statement limit.
func (c *compiler) limit(body json.RawMessage) bool {
	if c.object(objectLimit, body) {
		return true
	}
	var object struct {
		Rate, Burst *uint64
		Per         string
		Inv         bool
		RateUnit    string `json:"rate_unit"`
		BurstUnit   string `json:"burst_unit"`
	}
	if !exactly(body, &object) || object.Rate == nil {
		return false
	}
	unit, ok := map[string]expr.LimitTime{
		"second": expr.LimitTimeSecond, "minute": expr.LimitTimeMinute, "hour": expr.LimitTimeHour,
		"day": expr.LimitTimeDay, "week": expr.LimitTimeWeek,
	}[object.Per]
	if !ok {
		return false
	}
	x := expr.Limit{Rate: *object.Rate, Over: object.Inv, Unit: unit}
	burst := uint64(0)
	switch object.RateUnit {
	case "", "packets":
		if burst = 5; object.Burst != nil { // 5 is the default of nft(8)
			burst = *object.Burst
		}
	default:
		x.Type = expr.LimitTypePktBytes
		if x.Rate, ok = bytesOf(x.Rate, object.RateUnit); !ok {
			return false
		}
		if object.Burst != nil {
			burst, ok = bytesOf(*object.Burst, object.BurstUnit)
		}
	}
	x.Burst = uint32(burst)
	c.add(&x)
	return ok && burst <= 1<<32-1
}

// quota translates the statement quota.
func (c *compiler) quota(body json.RawMessage) bool {
	if c.object(objectQuota, body) {
		return true
	}
	var object struct {
		Val, Used uint64
		Inv       bool
		Unit      string `json:"val_unit"`
		UsedUnit  string `json:"used_unit"`
	}
	if !exactly(body, &object) {
		return false
	}
	size, ok := bytesOf(object.Val, object.Unit)
	c.add(&expr.Quota{Bytes: size, Over: object.Inv})
	return ok
}

// connectionLimit translates ct count.
func (c *compiler) connectionLimit(body json.RawMessage) bool {
	var object struct {
		Val uint32
		Inv bool
	}
	if !exactly(body, &object) {
		return false
	}
	x := expr.Connlimit{Count: object.Val}
	if object.Inv {
		x.Flags = expr.NFT_CONNLIMIT_F_INV
	}
	c.add(&x)
	return true
}

// elementExpression translates a statement of an element: a limit or a counter.
func (c *compiler) elementExpression(s statement) (expr.Any, bool) {
	if s.kind != "limit" && s.kind != "counter" {
		return nil, false
	}
	limited := compiler{sets: c.sets}
	if !limited.translate(s) || len(limited.added) != 1 {
		return nil, false
	}
	e, ok := limited.added[0].(expr.Any)
	_, isObject := e.(*expr.Objref)
	return e, ok && !isObject
}

// changeSet translates a statement that adds an element to a set or deletes it.
func (c *compiler) changeSet(body json.RawMessage) bool {
	var change struct {
		Op, Set    string
		Elem       json.RawMessage
		Statements []statement `json:"stmt"`
	}
	if !exactly(body, &change) {
		return false
	}
	operation, ok := map[string]uint32{
		"add": unix.NFT_DYNSET_OP_ADD, "update": unix.NFT_DYNSET_OP_UPDATE,
		"delete": operationDelete,
	}[change.Op]
	name, isNamed := strings.CutPrefix(change.Set, "@")
	object, exists := c.sets.in.sets[objectID{c.sets.id.family, c.sets.id.table, name}]
	if !ok || !isNamed || !exists || object.Map != nil {
		return false
	}
	key := change.Elem
	x := expr.Dynset{SetName: name, Operation: operation}
	if kind, elem := onlyMember(change.Elem); kind == "elem" {
		var with struct {
			Val     json.RawMessage
			Timeout uint32 // in seconds
		}
		if !exactly(elem, &with) {
			return false
		}
		key, x.Timeout = with.Val, time.Duration(with.Timeout)*time.Second
	}
	for _, s := range change.Statements {
		e, ok := c.elementExpression(s)
		if !ok {
			return false
		}
		x.Exprs = append(x.Exprs, e)
	}
	fields, ok := c.fields(key)
	if !ok {
		return false
	}
	if _, ok := c.sets.get(encode(change.Set), fields, nil, false); !ok {
		return false
	}
	c.sets.changed[name] = true
	reg, ok := c.load(fields, false)
	x.SrcRegKey = reg.number()
	c.add(&x)
	return ok
}
