-- The health of a Swarm for Argo CD, by the conditions that the operator publishes. docs/monitoring.md
-- has the commands that install it. Argo CD loads no library for strings.
local health = { status = "Progressing", message = "No operator has read the Swarm yet." }
local status = obj.status
if status == nil or status.observedGeneration == nil then
  return health
end
if obj.metadata.generation ~= nil and status.observedGeneration < obj.metadata.generation then
  health.message = "No operator has read the last edit yet."
  return health
end

local conditions = {}
for _, condition in ipairs(status.conditions or {}) do
  conditions[condition.type] = condition
end
local ready, stalled, healthy = conditions.Ready, conditions.Stalled, conditions.Healthy
if ready == nil then
  return health
end
health.message = (ready.reason or "") .. ": " .. (ready.message or "")

if ready.reason == "Suspended" or ready.reason == "Paused" then
  health.status = "Suspended"
elseif stalled ~= nil and stalled.status == "True" then
  health.status = "Degraded"
elseif ready.status == "True" then
  health.status = "Healthy"
  -- Jobs that fail do not make a Swarm unready, as for kstatus.
  if healthy ~= nil and healthy.status == "False" then
    health.message = (healthy.reason or "") .. ": " .. (healthy.message or "")
  end
end
return health
