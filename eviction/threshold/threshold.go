package threshold

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Value is an amount, or a percentage of what there is.
type Value struct {
	// Quantity is nil for a percentage.
	Quantity *resource.Quantity
	// Percentage is 0 to 1; a 32-bit float as in the kubelet, so that both compute the same.
	Percentage float32
}

// ParseValue parses an amount (100Mi) or a percentage (10%), neither negative, nor more than all.
func ParseValue(text string) (Value, error) {
	if percent, ok := strings.CutSuffix(text, "%"); ok {
		f, err := strconv.ParseFloat(percent, 32)
		if err != nil || !(f >= 0 && f <= 100) { // nor NaN
			return Value{}, notAValue(text)
		}
		return Value{Percentage: float32(f) / 100}, nil
	}
	q, err := resource.ParseQuantity(text)
	if err != nil || q.Sign() < 0 {
		return Value{}, notAValue(text)
	}
	return Value{Quantity: &q}, nil
}

func notAValue(text string) error {
	return fmt.Errorf("%q is not an amount or a part: give one such as 100Mi or 10%%", text)
}

// QuantityOf is the amount that the value is of a capacity.
func (v Value) QuantityOf(capacity int64) resource.Quantity {
	if v.Quantity != nil {
		return v.Quantity.DeepCopy()
	}
	return *resource.NewQuantity(int64(float64(capacity)*float64(v.Percentage)), resource.BinarySI)
}

// isDisabled says that the value switches a threshold off: 0% and 100% do, as in the kubelet.
func (v Value) isDisabled() bool {
	return v.Quantity == nil && (v.Percentage == 0 || v.Percentage == 1)
}

// Threshold is met while the signal is below the value.
type Threshold struct {
	Signal Signal
	Value  Value
	// GracePeriod is how long a soft one must have been met; a hard one has none.
	GracePeriod time.Duration
	// MinReclaim is how far the available amount must exceed the value again once the
	// threshold was met; nil for nothing.
	MinReclaim *Value
}

// Hard says that it counts at once.
func (t *Threshold) Hard() bool { return t.GracePeriod == 0 }

// Met says whether the threshold is met with so much available of a capacity. With
// reclaiming, MinReclaim counts, too.
func (t *Threshold) Met(available, capacity int64, reclaiming bool) bool {
	limit := t.Value.QuantityOf(capacity)
	if reclaiming && t.MinReclaim != nil {
		limit.Add(t.MinReclaim.QuantityOf(capacity))
	}
	return limit.CmpInt64(available) > 0
}

// Settings are the fields of KubeletConfiguration, after defaulting.
type Settings struct {
	Hard, Soft, SoftGrace, MinReclaim map[string]string
	// EnforcePodAllocatable says that the pods together are held to what is not reserved: a hard
	// threshold of memory then also counts for what that leaves them.
	EnforcePodAllocatable bool
}

// FieldError is something wrong with a field.
type FieldError struct{ Field, Message string }

// Parse returns the thresholds, most urgent first, without those that count for nothing, or
// what is wrong with the settings.
func Parse(s Settings) ([]Threshold, []FieldError) {
	var p parser
	reclaims := p.values("evictionMinimumReclaim", s.MinReclaim)
	graces := p.gracePeriods(s.SoftGrace)
	var all []Threshold
	for signal, value := range p.values("evictionHard", s.Hard) {
		all = append(all, Threshold{Signal: signal, Value: value})
		if _, given := s.Hard[string(AllocatableMemoryAvailable)]; signal == MemoryAvailable && s.EnforcePodAllocatable && !given {
			all = append(all, Threshold{Signal: AllocatableMemoryAvailable, Value: value})
		}
	}
	for signal, value := range p.values("evictionSoft", s.Soft) {
		grace, given := graces[signal]
		if !given {
			p.fail("evictionSoft", string(signal), errors.New("has no grace period: give it one in evictionSoftGracePeriod"))
		}
		all = append(all, Threshold{Signal: signal, Value: value, GracePeriod: grace})
	}
	if len(p.fieldErrors) > 0 {
		slices.SortFunc(p.fieldErrors, func(a, b FieldError) int {
			return cmp.Or(cmp.Compare(a.Field, b.Field), cmp.Compare(a.Message, b.Message))
		})
		return nil, p.fieldErrors
	}
	all = slices.DeleteFunc(all, func(t Threshold) bool { return t.Signal.Ignored() || t.Value.isDisabled() })
	for i := range all {
		from := all[i].Signal
		if _, own := reclaims[from]; !own && from == AllocatableMemoryAvailable {
			from = MemoryAvailable
		}
		if v, ok := reclaims[from]; ok {
			all[i].MinReclaim = &v
		}
	}
	slices.SortStableFunc(all, func(a, b Threshold) int {
		return cmp.Or(cmp.Compare(a.Signal.urgency(), b.Signal.urgency()), cmp.Compare(a.GracePeriod, b.GracePeriod))
	})
	return all, nil
}

// parser collects field errors.
type parser struct{ fieldErrors []FieldError }

func (p *parser) fail(field, signal string, err error) {
	p.fieldErrors = append(p.fieldErrors, FieldError{field, signal + ": " + err.Error()})
}

func (p *parser) known(field, signal string) bool {
	if slices.Contains(Signals, Signal(signal)) {
		return true
	}
	names := make([]string, len(Signals))
	for i, s := range Signals {
		names[i] = string(s)
	}
	p.fail(field, signal, errors.New("is not a signal: give one of "+strings.Join(names, ", ")))
	return false
}

func (p *parser) values(field string, given map[string]string) map[Signal]Value {
	out := map[Signal]Value{}
	for _, signal := range slices.Sorted(maps.Keys(given)) {
		if !p.known(field, signal) {
			continue
		}
		v, err := ParseValue(given[signal])
		if err != nil {
			p.fail(field, signal, err)
			continue
		}
		out[Signal(signal)] = v
	}
	return out
}

func (p *parser) gracePeriods(given map[string]string) map[Signal]time.Duration {
	out := map[Signal]time.Duration{}
	for _, signal := range slices.Sorted(maps.Keys(given)) {
		if !p.known("evictionSoftGracePeriod", signal) {
			continue
		}
		d, err := time.ParseDuration(given[signal])
		if err != nil || d < 0 {
			p.fail("evictionSoftGracePeriod", signal, fmt.Errorf("%q is not a time: give one such as 1m30s", given[signal]))
			continue
		}
		out[Signal(signal)] = d
	}
	return out
}
