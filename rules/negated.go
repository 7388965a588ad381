package rules

import "reflect"

// Negated returns the match of the packets that have the compared field with another value. It
// returns a [MatchFamily], [MatchCgroup], [MatchTuple] or [Unknown] unchanged.
func Negated(match Match) Match {
	switch m := match.(type) {
	case MatchDirection:
		return MatchDirection{Reply: !m.Reply}
	case MatchTuple:
		return m
	}
	negated := reflect.New(reflect.TypeOf(match)).Elem()
	negated.Set(reflect.ValueOf(match))
	if not := negated.FieldByName("Not"); not.IsValid() {
		not.SetBool(!not.Bool())
	}
	return negated.Interface().(Match)
}
