package routing_test

import (
	"fmt"
	"time"

	"github.com/hearsay-llm/hearsay/routing"
	"github.com/hearsay-llm/hearsay/state"
)

func ExamplePicker_Pick() {
	now := time.Now()
	store := state.NewStore(state.Config{
		Self: "r1", Clock: state.NewClock(1, now),
		Pools: []state.PoolSpec{{Name: "chat", Model: "llama", Policy: routing.LeastOutstanding}},
	})
	store.SetReplicas(state.SourceStatic, "chat", []state.Replica{{ID: "a"}, {ID: "b"}})
	picker := routing.NewPicker(routing.Config{}, nil, nil)

	view := store.View()
	store.Begin(view.Replica("a"), 900) // a request is on its way to a

	var choice routing.Choice
	req := routing.Request{Pool: view.Pool("llama"), PromptTokens: 500, MaxTokens: 100}
	if err := picker.Pick(&choice, &req, view, now); err != nil {
		fmt.Println(err)
		return
	}
	ticket := store.Begin(choice.Replica, choice.UncachedTokens)
	defer ticket.End()
	fmt.Println(choice.Replica.ID, choice.Policy, choice.Reason)
	// Output: b least_outstanding load
}
