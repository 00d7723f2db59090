package prober

import "container/heap"

// queue is a heap of probes by due time. A probe knows its index in it, so that one
// of a removed container is removed at once.
type queue []*probe

func (q *queue) add(pr *probe) {
	if pr.index < 0 {
		heap.Push((*byDue)(q), pr)
	} else {
		heap.Fix((*byDue)(q), pr.index)
	}
}

func (q *queue) remove(pr *probe) {
	if pr.index >= 0 {
		heap.Remove((*byDue)(q), pr.index)
	}
}

type byDue queue

func (q byDue) Len() int           { return len(q) }
func (q byDue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }

func (q byDue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

func (q *byDue) Push(x any) {
	pr := x.(*probe)
	pr.index = len(*q)
	*q = append(*q, pr)
}

func (q *byDue) Pop() any {
	old := *q
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	last.index = -1
	return last
}
