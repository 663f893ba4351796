// What the members of mixed groups share: their time limits, and how they tell what they hold and have read.
export const SESSION = 20000
export const HEARTBEAT = 500

const say = event => console.log(JSON.stringify(event))

// Called at each change of the assignment.
export const holds = partitions => say({ held: [...partitions].sort((a, b) => a - b) })

// Called for each record once that is committed.
export const read = (partition, offset) => say({ partition, offset })
