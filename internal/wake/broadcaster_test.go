package wake

import (
	"sync"
	"testing"
)

func told(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestEachSubscriberIsNotifiedOnceUntilItReceives(t *testing.T) {
	var b Broadcaster
	b.Notify() // nobody: nothing
	one, stopOne := b.Subscribe()
	two, stopTwo := b.Subscribe()
	defer stopTwo()
	if told(one) || told(two) {
		t.Error("told of what was before the subscription")
	}
	b.Notify()
	b.Notify()
	if !told(one) || told(one) || !told(two) || told(two) {
		t.Error("two notifications: want each told exactly once")
	}
	stopOne()
	stopOne()
	b.Notify()
	if told(one) || !told(two) {
		t.Error("after the end of one subscription: want the other told alone")
	}
}

func TestASubscriptionThatEndsWhileOthersNotify(t *testing.T) {
	var b Broadcaster
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(b.Notify)
		wg.Go(func() {
			_, stop := b.Subscribe()
			stop()
		})
	}
	wg.Wait()
	if len(b.subs) != 0 {
		t.Errorf("%d subscriptions are left", len(b.subs))
	}
}
