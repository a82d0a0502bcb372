package api

// adminMessages are those of administration, with every field set.
func adminMessages() []any {
	order := MoveOrder{ID: "m1", Src: "s1", Dst: "s2", Buckets: []uint16{7}, Reason: "weights", Takeover: true}
	moved := MoveProgress{
		Order: order, Step: "receive", Waiting: "s2", Bytes: 10, Total: 20, Delivery: 2, Outcome: "dropped", Reason: "s2 is locked", AgeMS: 3000, EndedMS: 1000,
	}
	gone := GoneStorage{Storage: "s3", Buckets: 85, TakeoverMS: 12_000}
	share := ShareInfo{Storage: "s1", Weight: 1.5, Locked: true, Owned: 86, Then: 85, Share: 85.5, Low: 85, High: 86}
	bucket := BucketInfo{
		Bucket: 65534, State: BucketReceiving, Owner: "s1", Generation: 1 << 40, To: "s2", Locked: true, Records: 10, Bytes: 1 << 33, CountedAt: 1 << 41,
	}
	figures := BucketFigures{Bucket: 65534, Owner: "s1", Generation: 1 << 40, Loaded: true, Records: 10, Bytes: 1 << 33, CountedAt: 1 << 41}
	setting := Setting{Name: "pin_quota", Value: "4", Default: "8", About: "pins in a row"}
	planning := Planning{Ordered: []MoveOrder{order}, Gone: []GoneStorage{gone}}
	return []any{
		topologyMessage(), gone, share, bucket, figures, setting, planning, moved,
		TopologyRequest{
			Weights: map[string]float64{"s1": 0.5}, StartWeights: []string{"s2"}, LockBuckets: []uint16{1}, UnlockBuckets: []uint16{65534},
			LockStorages: []string{"s3"}, UnlockStorages: []string{"s4"}, Paused: new(true), Set: map[string]string{"pin_quota": "4"},
		},
		TopologyReply{Topology: topologyMessage(), Settings: []Setting{setting}},
		BucketsRequest{Buckets: []uint16{3, 65534}, From: 256, Count: true},
		BucketsReply{Buckets: []BucketInfo{bucket}, Next: 256},
		FiguresRequest{Buckets: []uint16{65534}, Count: true},
		FiguresReply{Buckets: []BucketFigures{figures}},
		MoveRequest{Buckets: []uint16{7}, To: "s2"},
		MoveReply{Orders: []MoveOrder{order}, There: []uint16{8}, Error: Errorf(CodeUnavailable, "no answer")},
		PlanReply{
			Balanced: true, Paused: true, Orders: []MoveOrder{order}, More: 3, Shares: []ShareInfo{share}, Gone: []GoneStorage{gone}, Notes: []string{"locked"},
		},
		MovesReply{Planner: "r1", Paused: true, Queued: []MoveOrder{order}, Running: []MoveProgress{moved}, Ended: []MoveProgress{moved}, InQueue: 2},
		RouterMoves{Router: "r1", Moves: []MoveProgress{moved}, Planning: &planning},
		Identity{Version: 1, Folder: "f1", Host: "h"},
	}
}

func topologyMessage() Topology {
	return Topology{
		Version: 1, Weights: map[string]float64{"s1": 0.5}, LockedBuckets: []uint16{1, 65534}, LockedStorages: []string{"s3"}, Paused: true,
		ParallelMoves: 4, MoveBandwidth: 1 << 26, Threshold: new(2.5), TakeoverGraceMS: 30_000, PinQuota: new(4), GateQuota: new(0),
	}
}
